"""What a policy believes instead of the truth: blurred, measured, or learned."""
