"""The SQL that turns a store of the present format into one of format 1."""

FORMAT_1 = """
DROP TRIGGER job_added; DROP TRIGGER job_removed; DROP TRIGGER job_changed;
DROP TABLE job_counts;
DROP INDEX jobs_by_user_state; DROP INDEX jobs_by_name_state;
DROP INDEX jobs_ended_by_state; DROP INDEX jobs_ended_by_user;
CREATE INDEX jobs_by_name ON jobs(name, number);
CREATE INDEX jobs_by_user ON jobs(user, number);
PRAGMA user_version=1;
"""
"""Format 1 had the same tables, and lists that were slower."""
