/* inner.h -- included before the sources of the reference plugin: they become a part of a stub,
 * with an entry of another name that is not exported, and without a note of their own. */
#include <minerva/plugin.h>
#undef MN_PLUGIN_NOTE
#define MN_PLUGIN_NOTE(id, kinds, isa) struct inner_unused
#define minerva_plugin_entry stub_reference_entry
