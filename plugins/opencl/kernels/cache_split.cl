/* cache_split.cl -- in front of cache.cl: the kernels of a cache that is larger than a buffer may
 * be. Its pages lie in several buffers, as many whole ones in each; a kernel gets all of them. They
 * are programs of their own, because choosing the buffer costs time at every position. */
#define KV_SPLIT
