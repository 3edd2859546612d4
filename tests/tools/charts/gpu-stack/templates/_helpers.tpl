{{- define "stack.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* One image from its three parts: (list part root). A digest follows an @. */ -}}
{{- define "stack.image" -}}
{{- $part := index . 0 -}}
{{- $version := $part.version | default (index . 1).Chart.AppVersion -}}
{{- $mark := ternary "@" ":" (hasPrefix "sha256:" $version) -}}
{{- printf "%s/%s%s%s" $part.repository $part.image $mark $version -}}
{{- end }}

{{- /* The same three parts, as fields of the policy: (list part root default-version). */ -}}
{{- define "stack.triple" -}}
{{- $part := index . 0 -}}
{{- with $part.repository }}
repository: {{ . }}
{{- end }}
{{- with $part.image }}
image: {{ . }}
{{- end }}
{{- with $part.version | default (index . 1) }}
version: {{ . | quote }}
{{- end }}
imagePullPolicy: {{ $part.imagePullPolicy | default "IfNotPresent" }}
{{- end }}
