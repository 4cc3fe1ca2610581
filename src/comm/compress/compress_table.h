// The rows of compress_table.c.
#ifndef COMM_COMPRESS_TABLE_H
#define COMM_COMPRESS_TABLE_H

#include "comm/compress/compress.h"

extern const comm_codec comm_codec_bf16;
extern const comm_codec comm_codec_int8;
extern const comm_codec comm_codec_fp8;
extern const comm_codec comm_codec_topk;
extern const comm_codec comm_codec_onebit;

#endif
