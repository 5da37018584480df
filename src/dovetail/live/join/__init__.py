"""How nodes of other machines join a controller: words, certificates, the gate and who dials it."""
