"""The devices of a host: who asks for them, who holds them."""
