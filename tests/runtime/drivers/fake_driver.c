/* An OpenCL driver with one GPU that computes nothing, or one that fails as drivers do.
   -DCRASHES: when it is loaded. -DHANGS: when it is asked. -DNO_HARDWARE: it finds none. -DNO_DRIVER: no functions.
   -DPRINTS: to stdout. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CRASHES
__attribute__((constructor)) static void crash(void) { abort(); }
#endif

#ifndef NO_DRIVER
static int nothing(void) { return 0; }

static int answer(const void *value, size_t length, size_t size, void *destination, size_t *needed) {
  if (needed) *needed = length;
  if (destination) memcpy(destination, value, length < size ? length : size);
  return 0;
}

static int text(const char *value, size_t size, void *destination, size_t *needed) {
  return answer(value, strlen(value) + 1, size, destination, needed);
}

static void *functions[256];
static struct { void **dispatch; } platform = {functions}, device = {functions};

static int platform_ids(unsigned entries, void **platforms, unsigned *count) {
#ifdef PRINTS
  printf("17\n");
  fflush(stdout);
#endif
#ifdef HANGS
  sleep(600);
#endif
#ifdef NO_HARDWARE
  return -1001;
#endif
  if (platforms && entries) platforms[0] = &platform;
  if (count) *count = 1;
  return 0;
}

static int platform_info(void *of, unsigned name, size_t size, void *value, size_t *needed) {
  switch (name) {
    case 0x0900: return text("FULL_PROFILE", size, value, needed);
    case 0x0901: return text("OpenCL 1.2 fake", size, value, needed);
    case 0x0902: return text("Fake Platform", size, value, needed);
    case 0x0904: return text("cl_khr_icd", size, value, needed);
    default: return text("fake", size, value, needed);
  }
}

static int device_ids(void *of, uint64_t type, unsigned entries, void **devices, unsigned *count) {
  if (devices && entries) devices[0] = &device;
  if (count) *count = 1;
  return 0;
}

static int device_info(void *of, unsigned name, size_t size, void *value, size_t *needed) {
  void *its_platform = &platform;
  uint64_t number = name == 0x1000 ? 4 : 1;  /* CL_DEVICE_TYPE_GPU */
  switch (name) {
    case 0x102B: return text("Fake Mali-G610", size, value, needed);
    case 0x102C: case 0x102D: return text("fake", size, value, needed);
    case 0x102E: return text("FULL_PROFILE", size, value, needed);
    case 0x102F: return text("OpenCL 1.2 fake", size, value, needed);
    case 0x1030: return text("", size, value, needed);
    case 0x103D: return text("OpenCL C 1.2 fake", size, value, needed);
    case 0x1031: return answer(&its_platform, sizeof its_platform, size, value, needed);
    default: return answer(&number, sizeof number, size, value, needed);
  }
}

void *clGetExtensionFunctionAddress(const char *name) {
  for (int i = 0; i < 256; ++i) functions[i] = nothing;
  functions[0] = platform_ids;
  functions[1] = platform_info;
  functions[2] = device_ids;
  functions[3] = device_info;
  if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return platform_ids;
  return !strcmp(name, "clGetPlatformInfo") ? platform_info : 0;
}

int clGetPlatformInfo(void *of, unsigned name, size_t size, void *value, size_t *needed) {
  return platform_info(of, name, size, value, needed);
}
#endif
