"""`statestore.capture`: the past of a job's state, kept in a warehouse while the job runs."""
