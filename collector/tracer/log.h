/* A line in the file that TRUELOAD_TRACER_LOG names; nothing is ever written elsewhere. */
#ifndef TRUELOAD_TRACER_LOG_H
#define TRUELOAD_TRACER_LOG_H

void log_open(const char *path);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
