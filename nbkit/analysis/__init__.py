"""What runs mean: tables, projections, bounds, published results and charts.

Pure functions of plain values: they read no run folder and start nothing.

``scaling``     how throughput grows with devices: table, sentence, JSON result
``projection``  what it may be beyond what was measured, or why that is not said
``bounds``      the most that a GPU's memory and arithmetic allow
``published``   published results, with sources
``charts``      the only module that imports altair
"""
