"""TOPK_V2 of long rows."""
