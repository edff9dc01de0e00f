"""What a run's files say about it: findings, bottlenecks, bounds, energy."""
