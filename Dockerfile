# Build:  docker build -t fedsynth .
# Use:    docker run --rm -v "$PWD/runs:/work/runs" fedsynth run split_mnist data=shapes preset=smoke
#
# A folder `wheels` beside this file is searched first: put wheels of torch and torchvision for the
# CPU there, and the image needs no CUDA libraries (docs/guides/installation.md).
FROM python:3.11-slim

WORKDIR /opt/fedsynth
COPY . .
RUN pip install --no-cache-dir --find-links wheels .
RUN useradd --create-home --uid 1000 fedsynth && mkdir -p /work/runs && chown -R fedsynth /work

USER fedsynth
WORKDIR /work
ENV FEDSYNTH_DATA=/work/data
ENTRYPOINT ["fedsynth"]
CMD ["--help"]
