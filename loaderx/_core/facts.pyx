"""What the build found, as the compiler was told it."""

from loaderx._core.zstd cimport ZSTD_versionString

cdef extern from *:
    """
    #ifdef _OPENMP
      #define LX_OPENMP _OPENMP
    #else
      #define LX_OPENMP 0
    #endif
    #ifdef __VERSION__
      #define LX_COMPILER __VERSION__
    #else
      #define LX_COMPILER "unknown"
    #endif
    #if defined(__clang__)
      #define LX_COMPILER_NAME "clang"
    #elif defined(__GNUC__)
      #define LX_COMPILER_NAME "gcc"
    #else
      #define LX_COMPILER_NAME "cc"
    #endif
    #ifndef LOADERX_ZSTD_SOURCE
      #define LOADERX_ZSTD_SOURCE "unknown"
    #endif
    """
    int LX_OPENMP
    const char* LX_COMPILER
    const char* LX_COMPILER_NAME
    const char* LOADERX_ZSTD_SOURCE


def zstd_version():
    """Return the version of the libzstd in use."""
    return (<bytes>ZSTD_versionString()).decode()


def zstd_source():
    """Return where the build found libzstd: "system", "prefix" or "bundled"."""
    return (<bytes>LOADERX_ZSTD_SOURCE).decode()


def openmp_version():
    """Return the OpenMP specification's date the core was compiled with, such as 201511, or None without OpenMP."""
    return LX_OPENMP or None


def compiler():
    """Return the compiler's name and version."""
    name = (<bytes>LX_COMPILER_NAME).decode()
    version = (<bytes>LX_COMPILER).decode()
    return version if version.lower().startswith(name) else f"{name} {version}"
