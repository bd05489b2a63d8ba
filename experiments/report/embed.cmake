# cmake -DFROM=FILE -DTO=FILE.c -DNAME=SYMBOL -P embed.cmake: a file as an array in C.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${TO} "#include <stddef.h>

extern const char ${NAME}[];
extern const size_t ${NAME}_bytes;

const char ${NAME}[] = {
    ${bytes}
};
const size_t ${NAME}_bytes = sizeof ${NAME};
")
