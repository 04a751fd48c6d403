"""Where everything of the page's pictures lies, in pixels; templates turn it into SVG."""
