/* panel_bytes.h -- layouts of panels whose instruction set has one product of bytes for all types:
 * what panel.h asks for, and then panel.h. */
#define PANEL_LAYOUTS(X) X(32, 0, 1) X(32, 1, 1) X(16, 0, 1) X(16, 1, 1)
#define PANEL_LAYOUT_OF(name, group, min, top) name##_##group##_##min##_1
#include "panel.h"
/* x is read as it is. */
typedef char panel_room;
INLINE const uint8_t *panel_x(const uint8_t *x, int64_t n, panel_room *room, const panel_layout l) {
    (void)n;
    (void)room;
    (void)l;
    return x;
}
