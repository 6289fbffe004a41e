/* scripts.c -- an expression that matches runs of one script. */
#include "text/pretokenizer/regex_syntax.h"
#include <string.h>

/* Of Unicode 12; characters of a later one count as unassigned. */
static const char scripts[] = "Latin Inherited Cyrillic Greek Arabic Armenian Bengali Devanagari "
                              "Ethiopic Georgian Gujarati Gurmukhi "
                              "Hangul Hebrew Kannada Khmer Lao Malayalam Mongolian Myanmar Oriya "
                              "Sinhala Tamil Telugu Thai Tibetan Bopomofo "
                              "Adlam Ahom Anatolian_Hieroglyphs Avestan Balinese Bamum Bassa_Vah "
                              "Batak Bhaiksuki Brahmi Braille Buginese "
                              "Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham "
                              "Cherokee Coptic Cuneiform Cypriot Deseret "
                              "Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Glagolitic "
                              "Gothic Grantha Gunjala_Gondi Hanifi_Rohingya "
                              "Hanunoo Hatran Imperial_Aramaic Inscriptional_Pahlavi "
                              "Inscriptional_Parthian Javanese Kaithi Kayah_Li "
                              "Kharoshthi Khojki Khudawadi Lepcha Limbu Linear_A Linear_B Lisu "
                              "Lycian Lydian Mahajani Makasar Mandaic "
                              "Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek "
                              "Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs "
                              "Miao Modi Mro Multani Nabataean Nandinagari New_Tai_Lue Newa Nko "
                              "Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki "
                              "Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian "
                              "Old_Sogdian Old_South_Arabian Old_Turkic "
                              "Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa "
                              "Phoenician Psalter_Pahlavi Rejang Runic Samaritan "
                              "Saurashtra Sharada Shavian Siddham SignWriting Sogdian Sora_Sompeng "
                              "Soyombo Sundanese Syloti_Nagri Syriac "
                              "Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tangut Thaana "
                              "Tifinagh Tirhuta Ugaritic Vai Wancho "
                              "Warang_Citi Yi Zanabazar_Square";

/* What has no script goes with what stands before it, as a space does; kana and their length mark
 * go with Han. */
#define NEUTRAL " \\p{sc:Unknown}"
#define HAN "\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30fc}"

void mn_pattern_scripts(mn_text *out) {
    mn_text_puts(out, "[" HAN "][" HAN NEUTRAL
                      "]*|\\p{sc:Common}(?:(?!\\x{30fc})[\\p{sc:Common}" NEUTRAL "])*");
    for (const char *s = scripts; *s;) {
        const int n = (int)strcspn(s, " ");
        mn_text_printf(out, "|\\p{sc:%.*s}[\\p{sc:%.*s}" NEUTRAL "]*", n, s, n, s);
        s += n + (s[n] == ' ');
    }
}
