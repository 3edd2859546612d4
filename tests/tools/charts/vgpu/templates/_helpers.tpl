{{- /* (list image root default-tag): the global registry goes over the image's own, the image's own tag over the other. */ -}}
{{- define "vgpu.image" -}}
{{- $image := index . 0 -}}
{{- $registry := (index . 1).Values.global.imageRegistry | default $image.registry -}}
{{- printf "%s/%s:%s" $registry $image.repository ($image.tag | default (index . 2)) -}}
{{- end }}
