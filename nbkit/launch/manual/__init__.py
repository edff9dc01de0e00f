"""The engine without a scheduler: users start torchrun on every host."""
