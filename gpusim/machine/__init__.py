"""One machine as data: memories, links, copy engines and costs, every number with its source."""
