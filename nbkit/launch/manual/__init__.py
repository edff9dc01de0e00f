"""The engine without a scheduler: torchrun started by hand on every host."""
