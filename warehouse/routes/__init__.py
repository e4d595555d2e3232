"""The routes of the server, one file a subject: each gives ``add(app, site)``, put together by ``warehouse.server``."""
