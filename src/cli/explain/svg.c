// Writes SVG. Numbers have one decimal: pictures are as wide as a screen, and files stay small.
#include "cli/explain/svg.h"

#include <stdarg.h>
#include <stdio.h>

static const char family[] = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, sans-serif";

static status text_escape(text *out, const char *content)
{
    for (const char *p = content; *p != '\0'; p++) {
        switch (*p) {
        case '<':
            TRY(text_add(out, "&lt;"));
            break;
        case '>':
            TRY(text_add(out, "&gt;"));
            break;
        case '&':
            TRY(text_add(out, "&amp;"));
            break;
        case '"':
            TRY(text_add(out, "&quot;"));
            break;
        default:
            // Characters that XML cannot represent become '?'.
            TRY(text_add_bytes(out, (unsigned char)*p < ' ' ? "?" : p, 1));
        }
    }
    return ST_OK;
}

status svg_begin(text *out, double width, double height, const char *title)
{
    TRY(text_add(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                 "width=\"%.0f\" height=\"%.0f\" font-family=\"%s\">\n<title>",
                 width, height, width, height, family));
    TRY(text_escape(out, title));
    return text_add(out, "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
}

status svg_end(text *out)
{
    return text_add(out, "</svg>\n");
}

status svg_box(text *out, const double at[4], double round, uint32_t fill, int64_t stroke)
{
    TRY(text_add(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"", at[0], at[1],
                 at[2], at[3]));
    if (round > 0.0) TRY(text_add(out, " rx=\"%.1f\"", round));
    TRY(text_add(out, " fill=\"#%06x\"", fill & 0xffffffu));
    if (stroke >= 0) TRY(text_add(out, " stroke=\"#%06x\"", (uint32_t)stroke & 0xffffffu));
    return text_add(out, "/>\n");
}

status svg_line(text *out, const double from_to[4], uint32_t colour, double width, bool dashed)
{
    return text_add(out,
                    "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#%06x\" "
                    "stroke-width=\"%.1f\"%s/>\n",
                    from_to[0], from_to[1], from_to[2], from_to[3], colour & 0xffffffu, width,
                    dashed ? " stroke-dasharray=\"4 3\"" : "");
}

status svg_label(text *out, double x, double y, const svg_font *font, const char *format, ...)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    char content[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(content, sizeof(content), format, args);
    va_end(args);
    TRY(text_add(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" fill=\"#%06x\"%s%s>", x,
                 y + 0.35 * font->size, font->size, font->colour & 0xffffffu,
                 font->bold ? " font-weight=\"600\"" : "", anchors[font->anchor]));
    TRY(text_escape(out, content));
    return text_add(out, "</text>\n");
}

uint32_t svg_lighter(uint32_t colour, double share)
{
    uint32_t out = 0;
    for (int shift = 0; shift <= 16; shift += 8) {
        const double c = (double)((colour >> shift) & 0xffu);
        out |= (uint32_t)(c + (255.0 - c) * share + 0.5) << shift;
    }
    return out;
}
