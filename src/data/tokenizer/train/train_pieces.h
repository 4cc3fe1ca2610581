// The parts of training a Unigram tokenizer: the texts as units, pieces and their tree. Private to
// this folder.
#ifndef DATA_TOKENIZER_TRAIN_TRAIN_PIECES_H
#define DATA_TOKENIZER_TRAIN_TRAIN_PIECES_H

#include "data/tokenizer/train/train_internal.h"

enum {
    PIECE_CHARACTERS_MAX = 16,
    // Longer words are cut: the sum over all ways to write a unit then stays within a double.
    UNIT_CHARACTERS_MAX = 32,
    UNIT_BYTES_MAX = 4 * UNIT_CHARACTERS_MAX,
    UNIT_EDGES_MAX = UNIT_CHARACTERS_MAX * PIECE_CHARACTERS_MAX,
    SEEDS_MAX = 1000000
};

// A part of a word whose characters all have a piece.
typedef struct train_unit {
    int64_t count; // how often it occurs
    int32_t at;    // of its first byte in train_units.text
    int32_t bytes;
} train_unit;

// Zero-initialise; free with train_units_deinit. Each unit is followed by a NUL in the text.
typedef struct train_units {
    data_bytes text;
    train_unit *items;
    int64_t count, capacity;
    int64_t characters;       // of all occurrences
    data_ids characters_kept; // code points that have a piece, ascending
} train_units;

NODISCARD status train_units_make(const train_words *w, int64_t characters_max, train_units *out);
void train_units_deinit(train_units *u);

typedef struct train_piece {
    int32_t at, bytes; // in the text of units
    double score;      // the logarithm of its probability
    bool is_character;
} train_piece;

// Pieces in the order of their bytes. Heap.
typedef struct train_pieces {
    train_piece *items;
    int64_t count;
} train_pieces;

// The characters, and the substrings of units that occur at least `min_frequency` times and that a
// longer one cannot stand for: those of the highest count times length, at most SEEDS_MAX.
NODISCARD status train_seeds(const train_units *u, int64_t min_frequency, train_pieces *out);

// The order of two pieces' bytes; text: the bytes of the units.
int train_piece_compare(const void *x, const void *y, void *text);

// Learns at most `wanted` pieces, the best first (train_unigram.c). The caller frees both results,
// after a failure too.
NODISCARD status train_unigram(const train_words *w, int64_t wanted, const data_train_options *o,
                               train_units *u, train_pieces *out);
// The tokenizer.json (train_write.c); p NULL: with the unknown token alone.
NODISCARD status train_unigram_file(const data_train_options *o, const train_units *u,
                                    const train_pieces *p, data_bytes *out);

// A tree of pieces. The children of a node stand next to each other, in the order of their bytes.
typedef struct train_tree {
    uint8_t *labels; // by node: the byte that leads to it
    int32_t *first;  // by node: its first child; the children end where those of node + 1 begin
    int32_t *ids;    // by node: the piece that ends there; -1: none
    int32_t roots[256];
    int64_t count;
} train_tree;
NODISCARD status train_tree_make(const train_units *u, const train_pieces *p, train_tree *out);
void train_tree_deinit(train_tree *t);
// The node after `byte`; -1: none. node 0 is the root.
static inline int32_t train_tree_step(const train_tree *t, int32_t node, uint8_t byte)
{
    if (node == 0) return t->roots[byte];
    for (int32_t i = t->first[node]; i < t->first[node + 1]; i++) {
        if (t->labels[i] == byte) return i;
    }
    return -1;
}

// An error for a list of training that does not fit into memory.
status train_no_memory(void);

#endif
