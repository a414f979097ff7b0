"""What this process may use and what a model needs: limits, CPU count, memory plan.

Knows nothing of engine, server or command line.
"""
