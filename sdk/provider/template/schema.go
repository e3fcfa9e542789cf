package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// setByChart are keys of the configuration that the chart sets by flags, which win: a value in the file would be ignored in
// silence, so the schema refuses it.
var setByChart = []string{
	"addr", "metrics_addr", "data_dir", "state", "provider", "adopt_store", "use_fake_backend", "tls", "log", "otlp_endpoint",
}

// ValuesSchema is values.schema.json of a provider's chart: the values that the library knows, and under config what the
// program accepts, so that helm refuses a wrong key before anything is deployed.
//
// config is what --print-schema printed; nil leaves that part open. old is the file as it stands, or nil: its title, and the
// properties that are neither the library's nor the configuration's, are the chart's own and are kept.
func ValuesSchema(old, config []byte) ([]byte, error) {
	common, err := files.ReadFile("library/common.schema.json")
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(common, &out); err != nil {
		return nil, fmt.Errorf("the library's schema: %w", err)
	}
	properties := out["properties"].(map[string]any)
	if len(config) > 0 {
		var c map[string]any
		if err := json.Unmarshal(config, &c); err != nil {
			return nil, fmt.Errorf("the schema of the configuration: %w", err)
		}
		keys, ok := c["properties"].(map[string]any)
		if !ok {
			return nil, errors.New("the schema of the configuration has no properties")
		}
		for _, key := range setByChart {
			delete(keys, key)
		}
		properties["config"] = map[string]any{
			"type": "object", "additionalProperties": false, "properties": keys, "description": c["title"],
		}
	}
	if len(old) > 0 {
		var before map[string]any
		if err := json.Unmarshal(old, &before); err != nil {
			return nil, fmt.Errorf("the schema as it stands: %w", err)
		}
		for _, key := range []string{"title", "required"} {
			if v, ok := before[key]; ok {
				out[key] = v
			}
		}
		own, _ := before["properties"].(map[string]any)
		for key, v := range own {
			if _, known := properties[key]; !known {
				properties[key] = v
			}
		}
	}
	return indented(out)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// started is the configuration of config.go as it is written; a test of the written module compares.
type started struct {
	Endpoint string `yaml:"endpoint" doc:"URL of the cloud's API."`
}

// chart is the generated part of a new provider's chart.
func (v view) chart() (map[string][]byte, error) {
	var printed bytes.Buffer
	cmd := provider.Program[started]{Name: v.Name}.Command()
	cmd.SetOut(&printed)
	cmd.SetArgs([]string{"--print-schema"})
	if err := cmd.Execute(); err != nil {
		return nil, err
	}
	return Chart(nil, printed.Bytes())
}

// Chart is the part of a provider's chart that is generated: values.schema.json, and the library under charts/, as
// this version of the SDK has it. Names are relative to the chart. The arguments are those of ValuesSchema.
func Chart(old, config []byte) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := fs.WalkDir(files, "library", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out["charts/bigfleet-provider-"+path], err = files.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	out["values.schema.json"], err = ValuesSchema(old, config)
	return out, err
}
