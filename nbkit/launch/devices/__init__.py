"""The devices of a host: choice, claims and leases."""
