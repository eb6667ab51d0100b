"""The isolated decode: a supervisor, its child processes, and what happens inside one."""
