"""Work over many processes or machines: a corpus in shards (which know no engine), run by local processes or by Ray."""
