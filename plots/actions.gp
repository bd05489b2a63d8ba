# The colours and the words of what a rank does, for timelines. In grey print a forward is dark, a backward
# lighter, and the odd chunks of both lighter than either.

shade(dark, light, chunk) = int(chunk) % 2 == 0 ? dark : light
kind_colour(kind, chunk) = \
    kind eq "F" ? shade(0x2b5a9e, 0x8fb2de, chunk) : \
    kind eq "B" ? shade(0x57a863, 0xbfe3ba, chunk) : \
    kind eq "I" ? shade(0x2a9d9a, 0x94d4cf, chunk) : \
    kind eq "W" ? shade(0xee9b3a, 0xf8cf93, chunk) : \
    kind eq "R" ? shade(0x9a9a9a, 0xc4c4c4, chunk) : \
    kind eq "O" || kind eq "L" ? shade(0x9273b0, 0xc6b3d8, chunk) : 0xf3f3f3
text_colour(kind, chunk) = \
    int(chunk) % 2 == 1 || kind eq "W" || kind eq "R" ? 0x202020 : 0xffffff
part_colour(part) = part eq "optimizer" ? 0x8c564b : part eq "reduce" ? 0xd1605e : 0xe8a5a3
kind_name(kind) = kind eq "F" ? "forward" : kind eq "B" ? "backward" : \
    kind eq "I" ? "input gradient" : kind eq "W" ? "weight gradient" : \
    kind eq "R" ? "recompute" : kind eq "O" ? "offload" : "load"
