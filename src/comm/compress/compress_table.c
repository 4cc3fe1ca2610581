// The codecs.
#include "comm/compress/compress_table.h"

#include <string.h>

const comm_codec *const comm_codec_table[] = {
    &comm_codec_bf16, &comm_codec_int8, &comm_codec_fp8, &comm_codec_topk, &comm_codec_onebit,
};

int comm_codec_count(void)
{
    return (int)COUNT_OF(comm_codec_table);
}

const comm_codec *comm_codec_find(const char *name)
{
    for (int i = 0; i < comm_codec_count(); i++) {
        if (strcmp(comm_codec_table[i]->name, name) == 0) return comm_codec_table[i];
    }
    return NULL;
}
