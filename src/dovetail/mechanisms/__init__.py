"""What several policies share between an algorithm and a draft: elastic shares, packing."""
