"""Jobs on the same GPU: pairs, interleaved sets, limits, and stragglers."""
