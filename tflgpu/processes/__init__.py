"""Programs that run in processes of their own: what may crash, hang or keep memory there and not here."""
