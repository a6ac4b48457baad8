"""The fault matrix: what clusters do to a controller, each a row of plain data that one generic case plays.

``row``: what a row is. ``scene``: what it is played in. ``deeds`` and ``signs``: how trouble begins and ends, and what
shows it. The other modules hold the rows, by what is in trouble; ``matrix`` has all of them.
"""
