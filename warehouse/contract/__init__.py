"""What every room may import: units, intervals, metrics, records, wire format, errors, settings, plug-ins.

Standard library only, so that the node agent stays small.
"""
