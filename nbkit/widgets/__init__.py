"""Widgets: a form that launches runs, and views that follow and compare them.

They show and collect; they compute nothing. Nothing here is imported before it is used.
"""
