"""Random networks of the parts that networks of today are made of, each part in one of its spellings."""
