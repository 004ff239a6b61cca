"""Which embedding table goes where: ways to shard, sharders, local search on batches of assignments, lower bounds."""
