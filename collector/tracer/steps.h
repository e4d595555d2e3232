/* Steps of the user's own work, so that less GPU time can be told from less work. Any thread, at any time. */
#ifndef TRUELOAD_TRACER_STEPS_H
#define TRUELOAD_TRACER_STEPS_H

#include <stdint.h>

struct tracer_region;

/* From now on steps are counted there, and those that came before are added to it. */
void steps_publish(struct tracer_region *region);

#endif
