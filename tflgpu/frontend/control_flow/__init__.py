"""WHILE and IF: as the operators that they become where constants decide, else as pieces that the device runs."""
