"""Input records: seeded columns made with numpy, their bytes, and the bulk loader."""
