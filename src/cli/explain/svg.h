// A small SVG writer: shapes and labels with their colours, written in sequence.
#ifndef CLI_EXPLAIN_SVG_H
#define CLI_EXPLAIN_SVG_H

#include "base/text.h"

// Colours are 0xRRGGBB.
typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

typedef struct svg_font {
    double size;
    bool bold;
    uint32_t colour;
    svg_anchor anchor;
} svg_font;

NODISCARD status svg_begin(text *out, double width, double height, const char *title);
NODISCARD status svg_end(text *out);
// A rectangle with round corners; `stroke` < 0: without an outline.
NODISCARD status svg_box(text *out, const double at[4], double round, uint32_t fill,
                         int64_t stroke);
NODISCARD status svg_line(text *out, const double from_to[4], uint32_t colour, double width,
                          bool dashed);
// Writes a label in UTF-8, escaped; y is the middle of its height.
NODISCARD status svg_label(text *out, double x, double y, const svg_font *font, const char *format,
                           ...) PRINTF_LIKE(5, 6);
// Lightens a colour: 0 keeps it, 1 gives white.
uint32_t svg_lighter(uint32_t colour, double share);

#endif
