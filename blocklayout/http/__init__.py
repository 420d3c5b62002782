"""Serve models over HTTP: the Open Inference Protocol, on FastAPI and uvicorn. Comes with ``blocklayout[serve]``."""
