"""Quantising models: calibration, the scales that follow from it, and a QDQ model that other runtimes read as well."""
