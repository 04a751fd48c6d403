"""Tests of artifacts: records, the serializer and the disk cache."""
