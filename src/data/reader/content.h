// Recognises files by their first bytes. Private to this folder.
#ifndef DATA_READER_CONTENT_H
#define DATA_READER_CONTENT_H

#include "data/reader.h"

enum { CONTENT_HEAD_BYTES = 1 << 13 }; // bytes that the checks look at

// The codec of a file: that of its first bytes, otherwise that of its name, otherwise plain.
const data_codec *content_codec(const char *path, const uint8_t *head, int64_t count);

// Refuses, by name and with the remedy, decoded bytes that are no UTF-8 text: archives, documents,
// pictures, programs, other compressed data, UTF-16 and UTF-32, and other binary data.
NODISCARD status content_check_text(const char *path, const uint8_t *head, int64_t count);

// True if the first line is a JSON object with a member. `is_whole`: the bytes end with the line or
// the file; otherwise its beginning decides.
bool content_is_lines(const char *text, int64_t count, bool is_whole);

// True for names that end in .jsonl, .jsonlines, .ndjson or .json, perhaps with a codec's ending.
bool content_is_lines_name(const char *path);

#endif
