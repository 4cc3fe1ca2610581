// Where a text may be cut so that the ids of the pieces are those of the whole.
#include "data/tokenizer/pipeline/pipeline.h"

#include <string.h>

static const char mark[] = "\u2581"; // SentencePiece's blank
enum { MARK_BYTES = sizeof(mark) - 1 };

// No added token crosses a cut, or takes the white space behind it.
static bool keeps_cuts(const added_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        const added_token *a = &list->items[i];
        if (a->right || memchr(a->bytes, ' ', (size_t)a->count) != NULL ||
            memchr(a->bytes, '\t', (size_t)a->count) != NULL ||
            memmem(a->bytes + 1, (size_t)a->count - 1, mark, MARK_BYTES) != NULL) {
            return false;
        }
    }
    return true;
}

// ---- before white space -------------------------------------------------------------------------

// A space or tab after another character begins a word of every scanner, and ends one of the steps
// that drop white space; Unicode's forms compose nothing across it. Other expressions may match
// across any place.
static bool cuts_spaces(const pipeline *p)
{
    const splitter *first = &p->splitters[0];
    const bool drops = p->splitter_count > 0 &&
                       (first->kind == SPLITTER_WHITE_SPACE || first->kind == SPLITTER_WORDS);
    const bool scans =
        p->splitter_count > 0 && first->kind == SPLITTER_PATTERN && first->known.next != NULL;
    if (p->known.next == NULL && !drops && !scans) return false;
    for (int i = 0; i < p->splitter_count; i++) { // a piece does not know that it is not the first
        if (p->splitters[i].prepend == PREPEND_FIRST) return false;
    }
    for (int i = 0; i < p->normalizer_count; i++) {
        const normalizer_kind kind = p->normalizers[i].kind;
        const bool is_form = kind <= NORMALIZER_NFKD || kind == NORMALIZER_LOWERCASE;
        const bool is_bert = kind == NORMALIZER_CLEAN || kind == NORMALIZER_CHINESE ||
                             kind == NORMALIZER_BERT_ACCENTS || kind == NORMALIZER_STRIP_ACCENTS;
        if (!is_form && !(drops && is_bert)) return false;
    }
    return true;
}

// ---- between words of SentencePiece -------------------------------------------------------------

static bool is_text(const normalizer *n, const char *wanted)
{
    return n->text_bytes == (int64_t)strlen(wanted) &&
           memcmp(n->text, wanted, (size_t)n->text_bytes) == 0;
}

// The step changes what stands before a cut (a character from ! to ~) to something that neither
// ends with a blank nor is nothing, and what stands behind it (a space) by itself.
static bool keeps_words(const normalizer *n)
{
    switch (n->kind) {
    case NORMALIZER_NFC:
    case NORMALIZER_NFD:
    case NORMALIZER_NFKC:
    case NORMALIZER_NFKD:
    case NORMALIZER_LOWERCASE:
    case NORMALIZER_PREPEND: // at the beginning of a text alone, and so is Strip
    case NORMALIZER_STRIP:
    case NORMALIZER_NMT:
        return true;
    case NORMALIZER_REPLACE: // a single blank, or runs of blanks
        if (n->pattern.literal != NULL) {
            return n->pattern.literal_bytes == 1 && n->pattern.literal[0] == ' ';
        }
        return n->is_blanks;
    case NORMALIZER_PRECOMPILED:
        return precompiled_keeps_ascii(&n->table);
    case NORMALIZER_STRIP_ACCENTS:
    case NORMALIZER_BYTE_LEVEL:
    case NORMALIZER_CLEAN:
    case NORMALIZER_CHINESE:
    case NORMALIZER_BERT_ACCENTS:
        break;
    }
    return false;
}

// A mark stands for each blank, and words begin with it: because Metaspace cuts there, or because
// merges never cross the place before one.
static bool cuts_words(const pipeline *p)
{
    bool has_marks = false;
    for (int i = 0; i < p->normalizer_count; i++) {
        const normalizer *n = &p->normalizers[i];
        if (!keeps_words(n)) return false;
        has_marks = has_marks || (n->kind == NORMALIZER_REPLACE && n->pattern.literal != NULL &&
                                  is_text(n, mark));
    }
    for (int i = 1; i < p->splitter_count; i++) {
        if (p->splitters[i].prepend == PREPEND_FIRST) return false;
    }
    const splitter *first = &p->splitters[0];
    if (p->splitter_count > 0) return first->kind == SPLITTER_METASPACE && first->splits;
    return has_marks && p->marks.next != NULL;
}

int pipeline_cuts(const pipeline *p)
{
    if (!keeps_cuts(&p->added[0]) || !keeps_cuts(&p->added[1])) return 0;
    if (cuts_spaces(p)) return DATA_CUT_SPACES;
    return cuts_words(p) ? DATA_CUT_WORDS : 0;
}
