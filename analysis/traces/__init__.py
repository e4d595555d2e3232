"""Questions to a profiler's timeline: each module answers one, purely, and knows neither files nor the store."""
