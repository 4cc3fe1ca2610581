// Suffix arrays by induced sorting. Private to this folder.
//
// SA-IS (Nong, Zhang, Chan 2009, doi:10.1109/DCC.2009.42): linear time, and some 8 bytes a
// position of workspace.
#ifndef DATA_CORPUS_SUFFIX_ARRAY_H
#define DATA_CORPUS_SUFFIX_ARRAY_H

#include "base/base.h"

// suffixes[i]: where the i-th smallest suffix begins, by unsigned bytes; a suffix that is the
// beginning of another one comes before it. count < 2^31.
NODISCARD status suffix_array(const uint8_t *text_bytes, int64_t count, int32_t *suffixes);

#endif
